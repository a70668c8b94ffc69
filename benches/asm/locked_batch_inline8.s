    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov r15,r8
    mov r8,rcx
    mov r9,rdx
    mov r14,rsi
    mov rbx,rdi
    mov cl,0x1
    xor eax,eax
    lock cmpxchg BYTE PTR [rdi+0x180],cl
    jne 18
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
    lea rbp,[r8-0x1]
    mov eax,r8d
    or eax,0x80000000
    bswap eax
    mov DWORD PTR [rsp+0x4],eax
    mov rax,r8
    shr rax,1
    mov QWORD PTR [rsp+0x20],rax
    lea rax,[r8+0x3]
    shr rax,0x4
    mov QWORD PTR [rsp+0x30],rax
    lea r13d,[rax+0x6]
    shr r13d,0x2
    lea eax,[r13+0x7fffffd]
    mov QWORD PTR [rsp+0x28],rax
    xor r12d,r12d
    mov QWORD PTR [rsp+0x18],rcx
    mov esi,ecx
    mov DWORD PTR [rsp],edx
    jmp 4
2:
    movzx edi,BYTE PTR [r9]
    mov BYTE PTR [rcx+0x24],dil
    mov r10,QWORD PTR [rsp+0x20]
    movzx edi,BYTE PTR [r9+r10*1]
    mov BYTE PTR [rcx+r10*1+0x24],dil
    movzx edi,BYTE PTR [r9+rbp*1]
    mov BYTE PTR [rcx+rbp*1+0x24],dil
3:
    movzx edi,si
    shl rdi,0x28
    movabs r10,0x800000003
    or rdi,r10
    mov r10,QWORD PTR [rsp+0x28]
    add r10,rdi
    mov r11,QWORD PTR [rbx+0x50]
    add r11,QWORD PTR [rsp+0x30]
    add r11,rdi
    bswap r11
    mov QWORD PTR [rcx],r11
    mov QWORD PTR [rcx+0x8],0x8000000
    mov rdi,QWORD PTR [rbx+0x8]
    mov r11d,DWORD PTR [rbx+0x64]
    and r11d,edx
    shl r11,0x4
    mov QWORD PTR [rdi+r11*1],rax
    mov QWORD PTR [rdi+r11*1+0x8],r10
    add esi,r13d
    inc edx
    cmp r12,0x100
    je 8
4:
    mov rax,r15
    inc r15
    mov r10,QWORD PTR [r14+r12*1]
    mov r11d,DWORD PTR [r14+r12*1+0x8]
    add r12,0x10
    cmp rbp,QWORD PTR [rbx+0x70]
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
    mov edi,DWORD PTR [rsp+0x4]
    mov DWORD PTR [rcx+0x20],edi
    cmp r8,0x7
    jbe 6
    mov rdi,QWORD PTR [r9+r8*1-0x8]
    mov QWORD PTR [rcx+r8*1+0x1c],rdi
    cmp r8,0x9
    jb 3
    mov edi,0x8
    xor r10d,r10d
5:
    mov r11,QWORD PTR [r9+r10*1]
    mov QWORD PTR [rcx+r10*1+0x24],r11
    mov r10,rdi
    add rdi,0x8
    cmp rdi,r8
    jb 5
    jmp 3
6:
    cmp r8,0x3
    jbe 2
    mov edi,DWORD PTR [r9]
    mov DWORD PTR [rcx+0x24],edi
    mov edi,DWORD PTR [r9+r8*1-0x4]
    mov DWORD PTR [rcx+r8*1+0x20],edi
    jmp 3
7:
    mov rdi,rbx
    mov QWORD PTR [rsp+0x8],r9
    mov QWORD PTR [rsp+0x10],r8
    mov rcx,rax
    mov r8d,0x8
    xor r9d,r9d
    push QWORD PTR [rsp+0x10]
    push QWORD PTR [rsp+0x10]
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov esi,eax
    cmp r12,0x100
    mov r8,QWORD PTR [rsp+0x10]
    mov r9,QWORD PTR [rsp+0x8]
    jne 4
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 17
8:
    mov eax,edx
    sub eax,DWORD PTR [rsp]
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
    jmp 17
10:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_many]
    jmp 17
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
    jmp 17
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
    jmp 16
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
    jne 15
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
    jmp 16
15:
    mov rsi,rcx
    mov edx,eax
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
16:
    sfence
    mov rax,QWORD PTR [rbx+0x28]
    xor QWORD PTR [rbx+0x20],rax
    xor eax,eax
17:
    mov BYTE PTR [rbx+0x180],0x0
    add rsp,0x38
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
18:
    mov rdi,rbx
    mov r12,r8
    mov r13,r9
    call QWORD PTR [_ZN13mlx5_doorbell4lock13Lock$LT$T$GT$4wait]
    mov r9,r13
    mov r8,r12
    jmp 0
    mov r14,rax
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    jmp 19
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
    mov r14,rax
19:
    mov BYTE PTR [rbx+0x180],0x0
    mov rdi,r14
    call _Unwind_Resume@plt
