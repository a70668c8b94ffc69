    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov r12,r8
    mov r14,rcx
    mov r8,rdx
    mov r15,rsi
    mov rbx,rdi
    mov cl,0x1
    xor eax,eax
    lock cmpxchg BYTE PTR [rdi+0x180],cl
    jne 19
0:
    mov ecx,DWORD PTR [rbx+0x58]
    mov edx,DWORD PTR [rbx+0x5c]
    mov rax,QWORD PTR [rbx+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 1
    lea eax,[rcx-0x1]
    mov DWORD PTR [rbx+0x60],eax
1:
    mov eax,r14d
    or eax,0x80000000
    bswap eax
    mov DWORD PTR [rsp+0xc],eax
    mov rax,r14
    shr rax,1
    mov QWORD PTR [rsp+0x20],rax
    lea rax,[r14+0x3]
    shr rax,0x4
    mov QWORD PTR [rsp+0x30],rax
    lea ebp,[rax+0x6]
    shr ebp,0x2
    lea eax,[rbp+0x7fffffd]
    mov QWORD PTR [rsp+0x28],rax
    xor r13d,r13d
    mov QWORD PTR [rsp+0x18],rcx
    mov esi,ecx
    mov DWORD PTR [rsp+0x8],edx
    jmp 4
2:
    movzx edi,BYTE PTR [r8]
    mov BYTE PTR [rcx+0x24],dil
    mov r9,QWORD PTR [rsp+0x20]
    movzx edi,BYTE PTR [r8+r9*1]
    mov BYTE PTR [rcx+r9*1+0x24],dil
    lea r9,[r14-0x1]
    movzx edi,BYTE PTR [r8+r9*1]
    mov BYTE PTR [rcx+r9*1+0x24],dil
3:
    movzx edi,si
    shl rdi,0x28
    movabs r9,0x800000003
    or rdi,r9
    mov r9,QWORD PTR [rsp+0x28]
    add r9,rdi
    mov r10,QWORD PTR [rbx+0x50]
    add r10,QWORD PTR [rsp+0x30]
    add r10,rdi
    bswap r10
    mov QWORD PTR [rcx],r10
    mov QWORD PTR [rcx+0x8],0x8000000
    mov rdi,QWORD PTR [rbx+0x8]
    mov r10d,DWORD PTR [rbx+0x64]
    and r10d,edx
    shl r10,0x4
    mov QWORD PTR [rdi+r10*1],rax
    mov QWORD PTR [rdi+r10*1+0x8],r9
    add esi,ebp
    inc edx
    cmp r13,0x100
    je 8
4:
    mov rax,r12
    inc r12
    mov r10,QWORD PTR [r15+r13*1]
    mov r11d,DWORD PTR [r15+r13*1+0x8]
    add r13,0x10
    lea rcx,[r14-0x1]
    cmp rcx,QWORD PTR [rbx+0x70]
    jae 7
    cmp DWORD PTR [rbx+0x60],esi
    js 7
    mov ecx,DWORD PTR [rbx+0x64]
    and ecx,esi
    shl rcx,0x6
    add rcx,QWORD PTR [rbx]
    bswap r10
    bswap r11d
    mov QWORD PTR [rcx+0x10],r10
    mov QWORD PTR [rcx+0x18],r11
    mov edi,DWORD PTR [rsp+0xc]
    mov DWORD PTR [rcx+0x20],edi
    cmp r14,0x7
    jbe 6
    mov rdi,QWORD PTR [r8+r14*1-0x8]
    mov QWORD PTR [rcx+r14*1+0x1c],rdi
    cmp r14,0x9
    jb 3
    mov edi,0x8
    xor r9d,r9d
5:
    mov r10,QWORD PTR [r8+r9*1]
    mov QWORD PTR [rcx+r9*1+0x24],r10
    mov r9,rdi
    add rdi,0x8
    cmp rdi,r14
    jb 5
    jmp 3
6:
    cmp r14,0x3
    jbe 2
    mov edi,DWORD PTR [r8]
    mov DWORD PTR [rcx+0x24],edi
    mov edi,DWORD PTR [r8+r14*1-0x4]
    mov DWORD PTR [rcx+r14*1+0x20],edi
    jmp 3
7:
    mov rdi,rbx
    mov QWORD PTR [rsp+0x10],r8
    mov rcx,rax
    mov r8d,0x8
    xor r9d,r9d
    push r14
    push QWORD PTR [rsp+0x18]
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov esi,eax
    cmp r13,0x100
    mov r8,QWORD PTR [rsp+0x10]
    jne 4
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 18
8:
    mov eax,edx
    sub eax,DWORD PTR [rsp+0x8]
    cmp eax,0x1
    jne 10
    mov eax,esi
    sub eax,DWORD PTR [rsp+0x18]
    cmp eax,0x1
    jne 11
    cmp DWORD PTR [rbx+0x6c],0x0
    je 9
    mov rax,QWORD PTR [rbx+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 13
9:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 18
10:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_many]
    jmp 18
11:
    lea edi,[rax-0x1]
    cmp edi,DWORD PTR [rbx+0x6c]
    jae 12
    mov rdi,QWORD PTR [rbx+0x10]
    mov edi,DWORD PTR [rdi]
    test dil,0x1
    jne 14
12:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 18
13:
    mov DWORD PTR [rbx+0x58],esi
    mov DWORD PTR [rbx+0x5c],edx
    mov rax,QWORD PTR [rbx+0x38]
    mov WORD PTR [rax],dx
    mov rax,QWORD PTR [rbx+0x18]
    movzx edx,si
    bswap edx
    mov DWORD PTR [rax+0x4],edx
    sfence
    mov rax,QWORD PTR [rbx+0x20]
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    jmp 17
14:
    mov DWORD PTR [rbx+0x58],esi
    mov DWORD PTR [rbx+0x5c],edx
    mov rdi,QWORD PTR [rbx+0x38]
    mov WORD PTR [rdi],dx
    mov rdx,QWORD PTR [rbx+0x18]
    movzx esi,si
    bswap esi
    mov DWORD PTR [rdx+0x4],esi
    sfence
    mov rdi,QWORD PTR [rbx+0x20]
    cmp eax,0x2
    je 15
    cmp eax,0x3
    jne 16
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rdi],xmm0
    movaps XMMWORD PTR [rdi+0x10],xmm1
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    mov rax,QWORD PTR [rbx+0x20]
    movaps xmm0,XMMWORD PTR [rcx+0x40]
    movaps xmm1,XMMWORD PTR [rcx+0x50]
    movaps xmm2,XMMWORD PTR [rcx+0x60]
    movaps xmm3,XMMWORD PTR [rcx+0x70]
    movaps XMMWORD PTR [rax+0x40],xmm0
    movaps XMMWORD PTR [rax+0x50],xmm1
    movaps XMMWORD PTR [rax+0x60],xmm2
    movaps XMMWORD PTR [rax+0x70],xmm3
    movaps xmm0,XMMWORD PTR [rcx+0x80]
    movaps xmm1,XMMWORD PTR [rcx+0x90]
    movaps xmm2,XMMWORD PTR [rcx+0xa0]
    movaps xmm3,XMMWORD PTR [rcx+0xb0]
    movaps XMMWORD PTR [rax+0x80],xmm0
    movaps XMMWORD PTR [rax+0x90],xmm1
    movaps XMMWORD PTR [rax+0xa0],xmm2
    movaps XMMWORD PTR [rax+0xb0],xmm3
    jmp 17
15:
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rdi],xmm0
    movaps XMMWORD PTR [rdi+0x10],xmm1
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    movaps xmm0,XMMWORD PTR [rcx+0x40]
    movaps xmm1,XMMWORD PTR [rcx+0x50]
    movaps xmm2,XMMWORD PTR [rcx+0x60]
    movaps xmm3,XMMWORD PTR [rcx+0x70]
    movaps XMMWORD PTR [rdi+0x40],xmm0
    movaps XMMWORD PTR [rdi+0x50],xmm1
    movaps XMMWORD PTR [rdi+0x60],xmm2
    movaps XMMWORD PTR [rdi+0x70],xmm3
    jmp 17
16:
    mov rsi,rcx
    mov edx,eax
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
17:
    sfence
    mov rax,QWORD PTR [rbx+0x28]
    xor QWORD PTR [rbx+0x20],rax
    xor eax,eax
18:
    mov BYTE PTR [rbx+0x180],0x0
    add rsp,0x38
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
19:
    mov rdi,rbx
    mov r13,r8
    call QWORD PTR [_ZN13mlx5_doorbell4lock13Lock$LT$T$GT$4wait]
    mov r8,r13
    jmp 0
    mov r14,rax
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    jmp 20
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
    mov r14,rax
20:
    mov BYTE PTR [rbx+0x180],0x0
    mov rdi,r14
    call _Unwind_Resume@plt
