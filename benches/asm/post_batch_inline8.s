    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov rbx,r8
    mov rax,rcx
    mov r14,rdx
    mov r15,rsi
    mov esi,DWORD PTR [rdi+0x58]
    mov edx,DWORD PTR [rdi+0x5c]
    mov rcx,QWORD PTR [rdi+0x10]
    mov ecx,DWORD PTR [rcx]
    test cl,0x1
    jne 0
    lea ecx,[rsi-0x1]
    mov DWORD PTR [rdi+0x60],ecx
0:
    lea rbp,[rax-0x1]
    mov ecx,eax
    or ecx,0x80000000
    bswap ecx
    mov DWORD PTR [rsp+0x4],ecx
    mov rcx,rax
    shr rcx,1
    mov QWORD PTR [rsp+0x20],rcx
    lea rcx,[rax+0x3]
    shr rcx,0x4
    mov QWORD PTR [rsp+0x30],rcx
    lea r12d,[rcx+0x6]
    shr r12d,0x2
    lea ecx,[r12+0x7fffffd]
    mov QWORD PTR [rsp+0x28],rcx
    xor r13d,r13d
    mov DWORD PTR [rsp],edx
    mov QWORD PTR [rsp+0x18],rsi
    jmp 3
1:
    mov r9d,DWORD PTR [r14]
    mov DWORD PTR [rcx+0x24],r9d
    mov r9d,DWORD PTR [r14+rax*1-0x4]
    mov DWORD PTR [rcx+rax*1+0x20],r9d
2:
    movzx r9d,si
    shl r9,0x28
    movabs r10,0x800000003
    or r9,r10
    mov r10,QWORD PTR [rsp+0x28]
    add r10,r9
    mov r11,QWORD PTR [rdi+0x50]
    add r11,QWORD PTR [rsp+0x30]
    add r11,r9
    bswap r11
    mov QWORD PTR [rcx],r11
    mov QWORD PTR [rcx+0x8],0x8000000
    mov r9,QWORD PTR [rdi+0x8]
    mov r11d,DWORD PTR [rdi+0x64]
    and r11d,edx
    shl r11,0x4
    mov QWORD PTR [r9+r11*1],r8
    mov QWORD PTR [r9+r11*1+0x8],r10
    add esi,r12d
    inc edx
    cmp r13,0x100
    je 7
3:
    mov r8,rbx
    inc rbx
    mov r10,QWORD PTR [r15+r13*1]
    mov r11d,DWORD PTR [r15+r13*1+0x8]
    add r13,0x10
    cmp rbp,QWORD PTR [rdi+0x70]
    jae 6
    cmp DWORD PTR [rdi+0x60],esi
    js 6
    mov ecx,DWORD PTR [rdi+0x64]
    and ecx,esi
    shl rcx,0x6
    add rcx,QWORD PTR [rdi]
    bswap r10
    bswap r11d
    mov QWORD PTR [rcx+0x10],r10
    mov QWORD PTR [rcx+0x18],r11
    mov r9d,DWORD PTR [rsp+0x4]
    mov DWORD PTR [rcx+0x20],r9d
    cmp rax,0x7
    jbe 5
    mov r9,QWORD PTR [r14+rax*1-0x8]
    mov QWORD PTR [rcx+rax*1+0x1c],r9
    cmp rax,0x9
    jb 2
    mov r9d,0x8
    xor r10d,r10d
    xchg ax,ax
4:
    mov r11,QWORD PTR [r14+r10*1]
    mov QWORD PTR [rcx+r10*1+0x24],r11
    mov r10,r9
    add r9,0x8
    cmp r9,rax
    jb 4
    jmp 2
5:
    cmp rax,0x3
    ja 1
    movzx r9d,BYTE PTR [r14]
    mov BYTE PTR [rcx+0x24],r9b
    mov r10,QWORD PTR [rsp+0x20]
    movzx r9d,BYTE PTR [r14+r10*1]
    mov BYTE PTR [rcx+r10*1+0x24],r9b
    movzx r9d,BYTE PTR [r14+rbp*1]
    mov BYTE PTR [rcx+rbp*1+0x24],r9b
    jmp 2
6:
    mov QWORD PTR [rsp+0x8],rdi
    mov rcx,r8
    mov r8d,0x8
    xor r9d,r9d
    mov QWORD PTR [rsp+0x10],rax
    push rax
    push r14
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov esi,eax
    cmp r13,0x100
    mov rdi,QWORD PTR [rsp+0x8]
    mov rax,QWORD PTR [rsp+0x10]
    jne 3
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 16
7:
    mov eax,edx
    sub eax,DWORD PTR [rsp]
    cmp eax,0x1
    jne 9
    mov eax,esi
    sub eax,DWORD PTR [rsp+0x18]
    cmp eax,0x1
    jne 10
    cmp DWORD PTR [rdi+0x6c],0x0
    je 8
    mov rax,QWORD PTR [rdi+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 12
8:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 16
9:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_many]
    jmp 16
10:
    lea r8d,[rax-0x1]
    cmp r8d,DWORD PTR [rdi+0x6c]
    jae 11
    mov r8,QWORD PTR [rdi+0x10]
    mov r8d,DWORD PTR [r8]
    test r8b,0x1
    jne 13
11:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 16
12:
    mov DWORD PTR [rdi+0x58],esi
    mov DWORD PTR [rdi+0x5c],edx
    mov rax,QWORD PTR [rdi+0x38]
    mov WORD PTR [rax],dx
    mov rax,QWORD PTR [rdi+0x18]
    movzx edx,si
    bswap edx
    mov DWORD PTR [rax+0x4],edx
    sfence
    mov rax,QWORD PTR [rdi+0x20]
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    jmp 15
13:
    mov DWORD PTR [rdi+0x58],esi
    mov DWORD PTR [rdi+0x5c],edx
    mov r8,QWORD PTR [rdi+0x38]
    mov WORD PTR [r8],dx
    mov rdx,QWORD PTR [rdi+0x18]
    movzx esi,si
    bswap esi
    mov DWORD PTR [rdx+0x4],esi
    sfence
    mov rdx,QWORD PTR [rdi+0x20]
    cmp eax,0x2
    jne 14
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rdx],xmm0
    movaps XMMWORD PTR [rdx+0x10],xmm1
    movaps XMMWORD PTR [rdx+0x20],xmm2
    movaps XMMWORD PTR [rdx+0x30],xmm3
    movaps xmm0,XMMWORD PTR [rcx+0x40]
    movaps xmm1,XMMWORD PTR [rcx+0x50]
    movaps xmm2,XMMWORD PTR [rcx+0x60]
    movaps xmm3,XMMWORD PTR [rcx+0x70]
    movaps XMMWORD PTR [rdx+0x40],xmm0
    movaps XMMWORD PTR [rdx+0x50],xmm1
    movaps XMMWORD PTR [rdx+0x60],xmm2
    movaps XMMWORD PTR [rdx+0x70],xmm3
    jmp 15
14:
    mov rbx,rdi
    mov rdi,rdx
    mov rsi,rcx
    mov edx,eax
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
    mov rdi,rbx
15:
    sfence
    mov rax,QWORD PTR [rdi+0x28]
    xor QWORD PTR [rdi+0x20],rax
    xor eax,eax
16:
    add rsp,0x38
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
    mov rbx,rax
    mov rdi,QWORD PTR [rsp+0x8]
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
